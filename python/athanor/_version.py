"""The version of the package; the C++ library's."""

__version__ = "0.1.0"
