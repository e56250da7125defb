"""oneDNN is behind convolutions and large products."""
enabled = True



def is_available() -> bool:
    """Always true."""
    return True
