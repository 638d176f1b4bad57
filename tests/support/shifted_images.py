"""A data set whose training images are drawn anew each time they are read."""

import numpy as np
import torch


class ShiftedImages(torch.utils.data.Dataset):
    """Items of two arrays. Each image moves by at most one pixel to either side if `moved` is true."""

    def __init__(self, inputs, labels, moved=False):
        self.inputs, self.labels, self.moved = inputs, labels, moved

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        shift = int(torch.randint(-1, 2, ())) if self.moved else 0
        return np.roll(self.inputs[i], shift, axis=-1), int(self.labels[i])
