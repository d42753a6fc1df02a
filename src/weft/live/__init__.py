"""Events as they happen: how far a reader has read, and one tail of the table for all who listen."""
