"""The mind: the think-act loop, its grammar, contexts and reflex, the models it asks, the processes it starts."""
