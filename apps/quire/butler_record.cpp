#include "butler_record.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "study/svg_chart.h"
#include "terminal.h"

namespace quire::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string budget_name(size_t budget) { return fixed(kButlerBudgets[budget] * 100, 0) + "%"; }

// Four digits: what stands in a log is read by people and committed.
double rounded(double value) { return std::round(value * 1e4) / 1e4; }

Json score_json(const ButlerScore& score) {
  return {{"recall", rounded(score.recall)},
          {"mass", rounded(score.mass)},
          {"oracle_mass", rounded(score.oracle_mass)},
          {"always_mass", rounded(score.always_mass)},
          {"found", rounded(score.found())}};
}

// The mean of losses [first, end).
double mean_loss(const std::vector<float>& losses, size_t first, size_t end) {
  double sum = 0;
  for (size_t i = first; i < end; ++i) sum += static_cast<double>(losses[i]);
  return sum / static_cast<double>(end - first);
}

}  // namespace

Json butler_quality_json(const ButlerQuality& quality, bool with_layers) {
  Json budgets = Json::object();
  for (size_t b = 0; b < kButlerBudgets.size(); ++b) {
    Json entry = score_json(quality.mean(b));
    if (with_layers) {
      for (const char* key : {"recall", "mass", "oracle_mass", "found"}) {
        Json values = Json::array();
        for (const auto& layer : quality.layers) values.push_back(score_json(layer[b])[key]);
        entry[std::string("layers_") + key] = values;
      }
    }
    budgets[budget_name(b)] = entry;
  }
  return {{"rows", quality.n_rows}, {"budgets", budgets}};
}

std::string butler_log(const Json& head, const ButlerTrainer& trainer) {
  std::string text = head.dump() + "\n";
  auto check = trainer.checks().begin();
  for (size_t step = 0; step <= trainer.n_steps_done(); ++step) {
    if (step > 0) {
      const Json line = {{"step", step},
                         {"loss", rounded(static_cast<double>(trainer.losses()[step - 1]))},
                         {"rate", trainer.learning_rate(step - 1)}};
      text += line.dump() + "\n";
    }
    for (; check != trainer.checks().end() && check->step == step; ++check) {
      const Json line = {{"step", step}, {"validation", butler_quality_json(check->quality, true)}};
      text += line.dump() + "\n";
    }
  }
  return text;
}

std::string butler_chart(const std::string& title, const ButlerTrainer& trainer) {
  constexpr size_t kMostPoints = 120;
  Chart chart{title, "step", "loss (nats), recall and attention found (shares)", {}};
  const size_t n = trainer.n_steps_done();
  const size_t per_point = std::max<size_t>(1, (n + kMostPoints - 1) / kMostPoints);
  ChartSeries loss{"loss", {}};
  for (size_t first = 0; first < n; first += per_point) {
    const size_t end = std::min(n, first + per_point);
    loss.points.push_back({static_cast<double>(end), mean_loss(trainer.losses(), first, end)});
  }
  chart.series.push_back(loss);
  for (const size_t budget : {size_t{0}, size_t{2}}) {
    ChartSeries recall{"recall at " + budget_name(budget), {}};
    ChartSeries found{"found at " + budget_name(budget), {}};
    for (const ButlerCheck& check : trainer.checks()) {
      const ButlerScore score = check.quality.mean(budget);
      recall.points.push_back({static_cast<double>(check.step), score.recall});
      found.points.push_back({static_cast<double>(check.step), score.found()});
    }
    chart.series.push_back(recall);
    chart.series.push_back(found);
  }
  return svg_of(chart);
}

std::string beside(const std::string& output, const std::string& suffix) {
  constexpr std::string_view kOwn = ".safetensors";
  const bool has_own = output.size() > kOwn.size() && output.ends_with(kOwn);
  return output.substr(0, output.size() - (has_own ? kOwn.size() : 0)).append(suffix);
}

}  // namespace quire::cli
