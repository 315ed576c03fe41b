"""`archloom serve`: run folders as pages in a browser, live while they run. It reads folders and writes nothing."""
