"""What computes a step: a real model, or a formula."""
