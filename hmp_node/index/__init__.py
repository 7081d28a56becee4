"""What search needs beside the store: dictionaries of lemmas, embedders, vectors, and the worker that feeds them."""
