#include "model/linear.h"

#include <algorithm>

namespace quire {

void multiply_panel(const PackedMatrix& matrix, Precision precision, const Activations& activations,
                    size_t panel, size_t tile, float* out, size_t ldo, bool accumulate) {
  const bool tiles = reads_tiles(matrix, precision);
  const auto tile_tokens = static_cast<size_t>(activations.tile_tokens());
  const size_t first = tile * tile_tokens;
  const void* source = activations.floats + first * activations.columns;
  if (tiles) {
    source = activations.tiles +
             tile * (activations.columns / kBlockColumns) * kActivationBlockBytes * tile_tokens;
  }
  LinearArgs args;
  args.panel = matrix.panel(panel);
  args.activations = source;
  args.lda = activations.columns;
  args.columns = static_cast<int>(activations.columns);
  args.tile_tokens = static_cast<int>(tile_tokens);
  args.n_tokens = static_cast<int>(std::min(tile_tokens, activations.n_tokens - first));
  args.n_rows = static_cast<int>(std::min<size_t>(kPanelRows, matrix.n_rows - panel * kPanelRows));
  args.out = out;
  args.ldo = ldo;
  args.accumulate = accumulate;
  const auto kind = static_cast<size_t>(matrix.kind);
  (tiles ? ops().linear_fast : ops().linear_precise)[kind](args);
}

void multiply(Worker& worker, Precision precision, const Activations& activations,
              std::initializer_list<Product> products) {
  size_t n_panels = 0;
  for (const Product& product : products) n_panels += product.matrix->n_panels();
  const size_t pieces = static_cast<size_t>(worker.size()) * 8;
  const auto grain = static_cast<int64_t>(std::max<size_t>(1, n_panels / pieces));
  worker.share(static_cast<int64_t>(n_panels), grain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      size_t panel = i;
      const Product* product = products.begin();
      while (panel >= product->matrix->n_panels()) panel -= (product++)->matrix->n_panels();
      const auto tile_tokens = static_cast<size_t>(activations.tile_tokens());
      for (size_t tile = 0; tile < activations.n_tiles(); ++tile) {
        float* out = product->out + tile * tile_tokens * product->ldo + panel * kPanelRows;
        multiply_panel(*product->matrix, precision, activations, panel, tile, out, product->ldo,
                       product->accumulate);
      }
    }
  });
}

}  // namespace quire
