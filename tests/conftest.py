"""One thread for each test process: the tensors here are small, and two workers share two cores."""

import torch

torch.set_num_threads(1)
