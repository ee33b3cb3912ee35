"""`arena view`: a local web page that shows runs as they happen, and matches as their players saw them."""
