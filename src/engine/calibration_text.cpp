#include "engine/calibration_text.h"

namespace quire {
namespace {

constexpr char kText[] =
    R"text(The keeper of the northern light had two rules, and he taught them to every assistant in the first hour. The lamp is never left alone after dusk, and nothing that the sea brings is thrown away before it has been looked at twice. He had broken the second rule once, in the year of the great ice, when he kicked what seemed to be a box of wet rope back over the edge; a week later a man came walking along the cliff from the south and asked, very politely, whether anyone had seen the mail.

Marta arrived in the autumn with a trunk, a barometer and a cough. She was twenty-three, and she had come because the advertisement had promised quiet. For nine days it rained. On the tenth the clouds lifted, and she saw for the first time how far away everything was: the village was a row of teeth on the horizon, the road a scratch, and the ship that had set her down had long since gone round the point. She wrote in her notebook, "Visibility excellent. Nothing to see," and then, because that was unfair, she crossed out the second sentence and wrote instead, "Everything to see, all of it small."

Why do lighthouses turn? The question is older than electricity. A steady light, seen from a rolling deck, is a star or a window or a fire on the beach; a light that returns every twelve seconds can be only one thing, and a sailor who counts to twelve knows not merely that there is land but which land it is. The lens does the work. Augustin Fresnel understood that most of the glass in an ordinary lens is only there to hold the surface in place, so he took the inside away and kept the steps. What remained weighed a tenth as much, and threw the flame of a single oil burner more than thirty kilometres out to sea.

It is easy to forget that such a machine must be wound. Each evening the weight was cranked to the top of the tower, one hundred and eighty turns, and through the night it sank again, driving the clockwork as it fell. If it reached the floor before morning, the light stood still. "A stopped lamp is worse than a dark one," the keeper used to say. "A dark one tells them we are dead. A stopped one tells them they are somewhere else."

"You're late," said the keeper without turning round.

"The path is under water again. I had to go over the ridge, past the chapel." Marta hung her coat on the nail. "Did the boat come?"

"Came and went. There's flour, paraffin, and a letter for you with a green stamp."

"Green? That's from my brother. Did it say anything on the back?"

"I don't read other people's envelopes, miss." He waited a moment. "It said do not bend."

She laughed, and the laugh turned into the cough, and he got up and put the kettle on, as he always did, as though the two had nothing to do with each other.

In economics, as in physics, a quantity that is conserved is worth naming. When a town of 12,400 people imports 3.1 million litres of milk a year and drinks 2.9 million, the difference has not vanished; it has become cheese, or it has been poured away, or somebody has counted wrong. The third explanation is the most common. Between 1998 and 2004 the statistics office revised its figures five times, by -2.5 %, +0.8 %, +0.3 %, -1.1 % and finally +4.0 %, and each revision was defended with the same sentence: "The method has been improved."

How to patch a bicycle tube:

1. Take the wheel out and let all the air escape.
2. Lift one side of the tyre over the rim with two levers; never use a screwdriver.
3. Pump the tube up a little and listen, or hold it under water and look for bubbles.
4. Dry the place, roughen it with sandpaper, and spread the glue thinly over an area larger than the patch.
5. Wait five minutes. Waiting is the step that people leave out.
6. Press the patch on from the middle outwards, then put everything back in the opposite order.

| station | height (m) | wind (km/h) | temp. (°C) | rain (mm) |
| ------- | ---------: | ----------: | ---------: | --------: |
| North   |        112 |        54.3 |       -1.2 |      18.0 |
| Harbour |          4 |        31.0 |        3.8 |      22.5 |
| Ridge   |        347 |        78.9 |       -4.6 |       7.1 |
| Chapel  |        203 |        46.2 |        0.0 |      12.9 |

Dear Ms. Lindqvist, thank you for your order no. 2024-00817 of 14 March. We have sent 3 lenses (type B, 250 mm) at $149.95 each and 12 m of cable at $2.10 per metre; the total of $475.05 is due within 30 days. Questions? Write to service@example.com or call +1 555 0142.

#include <stdio.h>
#include <stdlib.h>

/* Returns the index of the first element that is not less than key. */
static size_t lower_bound(const int *a, size_t n, int key) {
  size_t low = 0, high = n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (a[middle] < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int main(void) {
  int values[] = {2, 3, 5, 7, 11, 13, 17, 19};
  printf("%zu\n", lower_bound(values, sizeof values / sizeof values[0], 12));
  return EXIT_SUCCESS;
}

import re
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Index:
    """Which documents a word occurs in, and how often."""

    postings: dict[str, Counter] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        for word in re.findall(r"[a-z']+", text.lower()):
            self.postings.setdefault(word, Counter())[name] += 1

    def search(self, query: str, limit: int = 10) -> list[tuple[str, float]]:
        scores = Counter()
        for word in query.lower().split():
            found = self.postings.get(word, {})
            for name, count in found.items():
                scores[name] += count / len(found)
        return scores.most_common(limit)


if __name__ == "__main__":
    index = Index()
    index.add("log-1", "The lamp was lit at dusk.")
    print(index.search("lamp dusk"))

{
  "name": "tide-table",
  "version": "2.3.1",
  "private": true,
  "stations": [
    {"id": 17, "lat": 61.2043, "lon": -6.9981, "active": true},
    {"id": 18, "lat": 60.0017, "lon": -1.4420, "active": false, "note": null}
  ],
  "units": {"height": "m", "time": "UTC"}
}

<!DOCTYPE html>
<html lang="en">
  <head><title>Log of the northern light</title></head>
  <body>
    <h1 class="title">Week 41</h1>
    <p>Fog on <em>three</em> nights; see <a href="/log/week-40.html">last week</a>.</p>
    <ul><li>oil: 38 l</li><li>wicks: 2</li></ul>
  </body>
</html>

SELECT station, AVG(wind) AS mean_wind FROM readings WHERE day >= '2023-10-01' GROUP BY station HAVING COUNT(*) > 20 ORDER BY mean_wind DESC LIMIT 5;

$ grep -rn "deprecated" src/ | wc -l
27
$ tar -czf backup.tar.gz --exclude=.git . && ls -lh backup.tar.gz
-rw-r--r-- 1 marta users 4.2M Oct 12 08:15 backup.tar.gz

Let f be a continuous function on the interval [0, 1] with f(0) = -1 and f(1) = 1. Then there is a point c with f(c) = 0. Proof: let S be the set of all x with f(x) < 0, and let c be its supremum. If f(c) were positive, then f would be positive on a small interval around c, so that a smaller number would bound S as well; if f(c) were negative, S would contain points beyond c. Both are impossible, hence f(c) = 0. For example, x^3 + x - 1 = 0 has the solution x ≈ 0.6823.

User: What is the difference between weather and climate?
Assistant: Weather is what happens in the air above you today: rain, wind, a warm afternoon. Climate is what you would expect there in that season, averaged over decades. You choose your clothes by the weather, and your wardrobe by the climate.
User: And can one cold winter disprove a warming climate?
Assistant: No. A single winter is one number in a long series. What matters is whether the average of many winters moves.

La vieille librairie de la rue des Tanneurs n'ouvrait que l'après-midi. On y entrait en baissant la tête, et il fallait quelques secondes pour que les yeux distinguent, dans la pénombre, les étagères qui montaient jusqu'au plafond. « Vous cherchez quelque chose ? » demandait toujours la propriétaire, d'un ton qui laissait entendre qu'il valait mieux ne rien chercher du tout, et se laisser trouver.

Der Zug hatte vierzig Minuten Verspätung, und auf dem Bahnsteig wusste niemand, warum. Ein älterer Herr erklärte, es liege gewiss an den Weichen; eine junge Frau hielt eine Störung im Stellwerk für wahrscheinlicher. Als die Lokomotive endlich über die Brücke kam, schwiegen beide, denn auf ihrem Dach saß, völlig unbeeindruckt, ein großer weißer Schwan.

Cuando los pescadores vuelven al puerto, poco antes del mediodía, el mercado ya está lleno. Las mujeres discuten el precio de las sardinas, los niños corren entre los cajones y un perro viejo duerme debajo de la balanza. ¿Cuánto cuesta el kilo? Depende de quién pregunte, y también de la lluvia de mañana.

Зимой озеро замерзало так быстро, что лодки не успевали вытащить на берег. Дед говорил, что лёд умеет петь, и однажды ночью мы вышли послушать. Сначала было тихо, потом где-то далеко раздался долгий низкий звук, словно кто-то провёл смычком по самой толстой струне.

村口有一棵很老的槐树，谁也不知道它是什么时候种下的。夏天的傍晚，老人们坐在树下喝茶、下棋，孩子们围着井台追来追去。奶奶常说，树比人记得清楚：哪一年发大水，哪一年下大雪，都写在年轮里。

كان الطريق إلى القرية طويلا، لكن المسافر لم يكن على عجلة من أمره. جلس قرب النبع، وأخرج من حقيبته خبزا وتمرا، ثم نظر إلى الجبال البعيدة وقال لنفسه إن الوصول ليس أجمل ما في السفر.

सुबह की पहली बस खाली थी। चालक ने खिड़की खोली और ठंडी हवा के साथ चाय की खुशबू भीतर आ गई। गाँव के बाहर एक लड़की किताब लेकर खड़ी थी; उसे शहर के पुस्तकालय जाना था।

By the end of the winter Marta had read every book in the tower, including the manual of the fog signal, which is the only one she later said she had truly enjoyed. In the last chapter there was a table of faults and remedies. Under "no sound" it advised: examine the valve, examine the boiler, examine the whistle, and, if all three are in order, examine whether you are listening. She copied it out and sent it to her brother, with a green stamp, and on the back of the envelope she wrote: may be bent.
)text";

}  // namespace

std::string_view calibration_text() { return {kText, sizeof kText - 1}; }

}  // namespace quire
