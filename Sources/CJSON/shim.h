#pragma once
#include <jansson.h>

// Inline functions of jansson that Swift does not see as such.
static inline void cjson_decref(json_t *value) { json_decref(value); }
