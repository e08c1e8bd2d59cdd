"""The instruments of the tests, apart from the tests: harnesses, machines, models, generators, fakes."""
