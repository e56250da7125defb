"""What programs written for torchrun import from here."""
