#pragma once
/// Keeps descriptors of our own away from standard input, output and error.

namespace athanor::detail {

/// `fd`, or where its number is one of the standard ones a duplicate of it with a higher number, `fd` then closed: a
/// program started without one of them (`program >&-`) would give its number to the next file, and what the program
/// prints would go there. Negative numbers stay, errno with them; so does `fd` if no descriptor is left.
int beyond_standard_descriptors(int fd) noexcept;

}  // namespace athanor::detail
