// Coding of pages on the device, and back, in the bytes that the CPU writes.
#pragma once

#include <stdint.h>

#include "format/code_catalogue.h"
#include "format/row_format.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/frame_plane.h"

namespace quire::cuda {

// Which formats the device codes: turbo2/3/4, nested2/3/4, q8, q4, kivi2, kivi4, signvq.
bool codes_on_device(Code code);

// Full pages of all KV heads, all pointers to device memory.
struct PagesToSeal {
  int n_pages;
  int n_kv_heads;
  int head_dim;   // a multiple of 16, up to 256
  Format format;  // of the exact rows, [64][head_dim] a page and head
  RowPlane rows;
  const int32_t* from;  // [n_pages] numbers of exact pages
  FramePlane frame;
  RowPlane coded;
  const int32_t* to;  // [n_pages] numbers of coded pages
};

// Rows are taken into the frame and coded. Throws Error where the device does not code the format.
void seal_keys(const PagesToSeal& pages, Code code, Stream stream);
void seal_values(const PagesToSeal& pages, Code code, Stream stream);

// Coded pages as rows in the frame, rows [n_pages][n_kv_heads][64][head_dim].
void open_keys(const RowPlane& coded, const int32_t* pages, int n_pages, int n_kv_heads, int head_dim,
               Code code, float* rows, Stream stream);
void open_values(const RowPlane& coded, const int32_t* pages, int n_pages, int n_kv_heads, int head_dim,
                 Code code, float* rows, Stream stream);

}  // namespace quire::cuda
