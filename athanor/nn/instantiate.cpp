// Compiles what headers declare with ATHANOR_LIBRARY_MODULE.
#define ATHANOR_INSTANTIATE_MODULES
#include "athanor/nn/nn.h"
