// Exponentials of whole vectors.

#pragma once

#include "vectors.hpp"

namespace {

typedef std::int32_t Whole32 __attribute__((vector_size(BYTES)));

// exp(x) for x of at most 0, to a few units in the last place; 0 below -80; not a number stays so.
ALWAYS Vector exponential_of(Vector x) {
    const Vector least = splat(-80.0f), none = {};
    const Vector given = x < least ? least : x;
    const Vector shift = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
    const Vector power = given * 1.44269504f + shift - shift;
    const Vector rest = (given - power * 0.693145752f) - power * 1.42860677e-6f;  // ln 2 in two parts, the first exact
    Vector sum = rest * (1.0f / 5040) + 1.0f / 720;  // Taylor's, enough for |rest| <= ln 2 / 2
    sum = sum * rest + 1.0f / 120;
    sum = sum * rest + 1.0f / 24;
    sum = sum * rest + 1.0f / 6;
    sum = sum * rest + 0.5f;
    sum = sum * rest + 1.0f;
    sum = sum * rest + 1.0f;
    const Whole32 exponent = (__builtin_convertvector(power, Whole32) + 127) << 23;
    const Vector made = sum * (Vector)exponent;  // the same bits
    return x < least ? none : made;
}

}  // namespace
