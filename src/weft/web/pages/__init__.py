"""One file a noun. A page is a function that returns what is shown; its template has the same name."""
