#include "property/coded_page.h"

#include <vector>

#include "format/code_catalogue.h"
#include "kernels/ops.h"

namespace quire::test {

void code_page(const SideFormat& format, const Frame* frame, const Codebook& book, size_t dim, bool keys,
               float* rows) {
  const int n = static_cast<int>(dim);
  visit_code(format.code, [&](auto code) {
    using F = decltype(code);
    std::vector<float> framed(rows, rows + size_t{kPageRows} * dim);
    for (size_t t = 0; frame != nullptr && t < size_t{kPageRows}; ++t) {
      to_frame(*frame, rows + t * dim, framed.data() + t * dim);
    }
    std::vector<uint8_t> page(static_cast<size_t>(keys ? F::key_page_bytes(n) : F::value_page_bytes(n)) +
                              kSpareBytes);
    keys ? F::encode_keys(framed.data(), n, book, page.data())
         : F::encode_values(framed.data(), n, book, page.data());
    for (int t = 0; t < kPageRows; ++t) {
      float* row = rows + static_cast<size_t>(t) * dim;
      keys ? F::decode_key_row(page.data(), n, t, book, row)
           : F::decode_value_row(page.data(), n, t, book, row);
      if (frame != nullptr) row_from_frame(*frame, row, row);
    }
  });
}

}  // namespace quire::test
