#pragma once
/// The one header, by the name of a part of libtorch's.

#include <torch/torch.h>
