#pragma once
/// Everything a program needs to communicate: namespace athanor::distributed, with torch.distributed's names.

#include "athanor/distributed/collectives.h"
#include "athanor/distributed/differentiable.h"
#include "athanor/distributed/error.h"
#include "athanor/distributed/groups.h"
#include "athanor/distributed/object_collectives.h"
#include "athanor/distributed/spawn.h"
#include "athanor/distributed/store/file_store.h"
#include "athanor/distributed/store/hash_store.h"
#include "athanor/distributed/store/tcp_store.h"
