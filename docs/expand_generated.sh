#!/bin/sh
# Filter of the API reference: a header with the generated declarations that it includes in their place.
sed -e "/^ *#include \"athanor\/ops\/functions.inc\"/{r $ATHANOR_GENERATED/athanor/ops/functions.inc" -e 'd}' \
    -e "/^ *#include \"athanor\/ops\/methods.inc\"/{r $ATHANOR_GENERATED/athanor/ops/methods.inc" -e 'd}' "$1"
