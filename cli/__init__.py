"""Arguments to the facade to text."""
