"""Ready-made session configurations, one module per model."""
