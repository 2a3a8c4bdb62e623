"""Sessions: spawned for one request, connected to one butler, ended with their answer."""
