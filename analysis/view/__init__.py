"""`arena view`: a page on this machine to look at runs as they happen, and at matches as their players saw them."""
