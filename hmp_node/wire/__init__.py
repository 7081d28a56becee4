"""Bytes to values and back: containers, seals, noise, frames, cards. Pure: no clock, no chance, no I/O."""
