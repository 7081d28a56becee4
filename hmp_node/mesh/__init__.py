"""The mesh as a pure machine: an event and the time go in, effects come out; no clock, chance or I/O."""
