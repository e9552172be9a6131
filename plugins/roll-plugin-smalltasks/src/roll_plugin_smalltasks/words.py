"""Names, places and things that prompts are made of. A word's split depends on the word alone, not on this order."""

from __future__ import annotations

_NAMES = """
Anna Ben Carla David Emma Frank Grace Henry Iris Jack Alice Bruno Clara Daniel Elena Felix Gina Hugo Ingrid
James Karen Leo Maria Nathan Olivia Peter Quentin Rosa Simon Teresa Ursula Victor Wendy Xavier Yara Zoe Adam
Bella Carlos Diana Eric Fiona George Hannah Ivan Julia Kevin Laura Martin Nora Oscar Paula Robert Sarah Thomas
Vera William Amir Lina Marco Nina Omar Priya Rafael Sofia Tom Lucy Mark Kate John Mary Paul Jane Max Eva Sam
Ruth Noah
"""
_CITIES = """
Paris London Tokyo Rome Oslo Cairo Lima Delhi Berlin Madrid Lisbon Vienna Prague Dublin Athens Boston Chicago
Denver Seattle Toronto Sydney Nairobi Seoul Beijing
"""
_SUBJECTS = """
dogs; cats; horses; elephants; penguins; dolphins; spiders; bees; owls; whales; tigers; rabbits; frogs;
butterflies; sharks; eagles; wolves; turtles; parrots; bears; ants; snakes; lions; ducks; sheep; rain; snow;
wind; thunder; fog; the moon; the sun; the stars; the sea; a river; a lake; a mountain; a desert; a forest; an
island; a volcano; a waterfall; a rainbow; a beach; a cave; winter; spring; summer; autumn; night; morning;
time; light; fire; ice; water; gold; salt; glass; paper; wood; steel; chess; football; tennis; swimming;
running; dancing; painting; singing; cooking; reading; sleeping; travelling; fishing; music; poetry; history;
mathematics; science; friendship; happiness; courage; love; money; school; tea; coffee; bread; cheese;
chocolate; honey; milk; rice; soup; pizza; apples; bananas; oranges; grapes; potatoes; tomatoes; onions;
sugar; a train; a bicycle; a car; a ship; an aeroplane; a bus; a rocket; a bridge; a castle; a house; a tent;
a garden; a farm; a market; a library; a museum; a hospital; a restaurant; a lighthouse; a church; a city; a
village; a kitchen; a window; a door; a chair; a table; a bed; a lamp; a clock; a mirror; a candle; a book; a
pencil; a letter; a map; a camera; a telephone; a computer; a robot; a piano; a guitar; a violin; a drum; a
hat; a coat; a shoe; an umbrella; a ring; a key; a knife; a spoon; a cup; a bottle; a basket; a box; a ball; a
kite; a doll; a teacher; a doctor; a farmer; a sailor; a painter; a baker; a pilot; a child; a king; a tree; a
rose; grass; a leaf; a seed; a mushroom; a flag; a wheel; a ladder; a rope; a bell; a feather; a stone; a
cloud; a shadow; a dream; a wedding; a birthday; a holiday
"""

NAMES = tuple(_NAMES.split())
CITIES = tuple(_CITIES.split())
SUBJECTS = tuple(" ".join(subject.split()) for subject in _SUBJECTS.split(";"))
