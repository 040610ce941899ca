"""Loss: pure functions of tensors. Importing it imports torch."""
