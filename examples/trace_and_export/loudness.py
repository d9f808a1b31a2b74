"""A network whose trace and export differ: the trace keeps a size and a branch of its example.

    PYTHONPATH=.. python ../record.py loudness:build --name recorded --out . --export
    onionskin check recorded/model.pt --export recorded/model.pt2
"""

import math

import torch
from torch import nn


class Loudness(nn.Module):
    """The level of a signal, limited to 1: its norm by the square root of the number of samples."""

    def forward(self, signal):
        level = signal.norm(dim=1) / math.sqrt(signal.shape[1])  # a number in the trace
        peak = level.amax()
        if torch.compiler.is_compiling():  # torch.export comes here
            return torch.cond(peak > 1, self.limit, self.keep, (level, peak))
        return self.limit(level, peak) if peak > 1 else self.keep(level, peak)  # one branch in the trace

    def limit(self, level, peak):
        return level / peak

    def keep(self, level, peak):
        return level * 1


def build():
    """Return the network and its example: two quiet signals of five samples."""
    torch.manual_seed(0)
    return Loudness(), (torch.rand(2, 5),)
