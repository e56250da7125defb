// A backend in a shared object of its own.
#include "athanor/distributed/plugin.h"

#include "examples/store_backend.h"

ATHANOR_BACKEND_PLUGIN(register_backend("shelf", [](const BackendOptions& options) {
                         return std::make_unique<store_backend::StoreBackend>(options);
                       });)
