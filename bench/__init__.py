"""What weft costs and how fast it is, beside what a user would pick instead. ``python -m bench --list`` names all."""
