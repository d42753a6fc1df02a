"""The one way out: how weft fetches, how often, from which address, and through which proxy."""
