"""The parts of the client that do input and output: connections, iterators, processes, the client itself."""
