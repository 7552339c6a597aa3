"""Sound as numbers: formats to samples and back, rates, units of input. Pure: numpy and soxr alone."""
