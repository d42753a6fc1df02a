"""The spiders of this project, a file each."""
