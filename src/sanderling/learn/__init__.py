"""Learn: rows become gradients, gradients new weights, weights checkpoints. The modules in here import torch."""
