"""The distributed hash table: signed address records over UDP, for whoever knows nothing but a DID or a word.

`kademlia` gives the buckets, the walk and the storage interface; what it believes, sends and keeps is decided here
(protocol/spec/dht.md). Nothing in the mesh depends on an answer: a record is a hint like any other.
"""
