#pragma once
/// Modules, containers, layers, losses, first values and helpers.

#include "athanor/nn/container.h"
#include "athanor/nn/functional.h"
#include "athanor/nn/init.h"
#include "athanor/nn/rnn.h"
#include "athanor/nn/transformer.h"
#include "athanor/nn/utils.h"
