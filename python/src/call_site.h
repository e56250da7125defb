#pragma once
/// Where the program is, for messages of the library.

#include "athanor/distributed/call_site.h"

namespace athanor::python {

/// The innermost line of Python outside the package. Needs the interpreter lock.
distributed::CallSite program_line();

}  // namespace athanor::python
