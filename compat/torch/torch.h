#pragma once
/// libtorch's header by its own name: programs that link Athanor::torch find this one.

#include "athanor/torch.h"
