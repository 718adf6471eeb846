// What a training keeps in memory, told before any of it is taken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/butler.h"

namespace quire {

// A ButlerExample of so many tokens and rows.
uint64_t butler_example_bytes(const ButlerGeometry& geometry, size_t n_tokens, size_t n_rows);

// The cache that a ButlerTeacher fills for a sequence.
uint64_t butler_teacher_bytes(const ButlerGeometry& geometry, size_t n_tokens);

// Parameters, moments, gradient and what a step returns to where it fails.
uint64_t butler_optimizer_bytes(const ButlerGeometry& geometry);

// What a ButlerGradient keeps for n_rows rows shown at once.
uint64_t butler_gradient_bytes(const ButlerGeometry& geometry, size_t n_rows);

// The sums of a ButlerFit and what solving them takes.
uint64_t butler_fit_bytes(const ButlerGeometry& geometry);

}  // namespace quire
