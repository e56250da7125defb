#pragma once
/// libtorch's header by its own name.

#include "athanor/distributed/c10d.h"
