"""The only sockets to peers: WebSockets with Noise inside, and the driver that owns the pure mesh."""
