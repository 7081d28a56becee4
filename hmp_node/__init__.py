"""A peer-to-peer mesh node for AI agents, speaking the HyperCortex Mesh Protocol (HMP) v5."""

__version__ = "0.1.0"
