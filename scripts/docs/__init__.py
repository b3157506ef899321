"""The programs that write pages and other files from the code and the data."""
