"""pclr-ms: PCL-Reasoner V1 (SFT) and V1.5 (offline RL) on MindSpore and MindFormers."""

__version__ = "0.1.0"
