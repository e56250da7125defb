#pragma once
/// Modules, containers, layers, losses, first values and helpers.

#include "athanor/nn/adaptive_softmax.h"
#include "athanor/nn/container.h"
#include "athanor/nn/functional.h"
#include "athanor/nn/init.h"
#include "athanor/nn/reparametrize.h"
#include "athanor/nn/rnn.h"
#include "athanor/nn/transformer.h"
#include "athanor/nn/utils.h"
