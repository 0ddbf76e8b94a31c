"""A small library on the flow of air, and questions that it answers, or has never heard of."""

from __future__ import annotations

from mcpvectordb import Database

NOTES = {
    "blunt": "Heat transfer to the nose of a blunt body in hypersonic flow falls with the square "
    "root of the nose radius. "
    "Measurements in a shock tunnel agree with the theory of the stagnation point.",
    "cone": "The pressure on a slender cone in supersonic flow follows from the angle of the "
    "attached shock wave. At small "
    "angles of attack the pressure varies with the cosine around the body.",
    "transition": "Transition from laminar to turbulent flow in a boundary layer moves upstream "
    "when the surface is rough. "
    "Cooling the wall delays it, until the roughness is as high as the layer is thick.",
    "flutter": "Flutter of a thin panel begins when the speed of the air passes a critical value. "
    "Tension in the panel raises "
    "that value, and a curved panel flutters later than a flat one.",
    "delta": "The lift of a delta wing at low speed comes to a large part from two vortices above "
    "its leading edges. They "
    "burst over the wing when the angle of attack is too high, and the lift is lost.",
    "separation": "Separation of a turbulent boundary layer ahead of a step depends on the Mach "
    "number and hardly on the "
    "Reynolds number. The pressure rises to a plateau in front of the step.",
    "jet": "The noise of a jet grows with the eighth power of its speed. Serrated nozzles mix the "
    "jet with the air around it "
    "and take away the deep tones.",
    "buckling": "Cylindrical shells under axial compression buckle at a fraction of the load that "
    "linear theory promises. "
    "Small dents in the wall of the cylinder explain most of the difference.",
    "tunnel": "The walls of a wind tunnel change the flow around a model. Slotted walls let air "
    "out "
    "where the stream would "
    "choke, so that tests near the speed of sound become possible.",
    "propeller": "A propeller in the slipstream of another one turns in air that is already "
    "swirling. Turning the second one "
    "the other way recovers the energy of the swirl.",
    "reentry": "A vehicle that enters the atmosphere at a flat angle heats up for longer, and one "
    "at a steep angle more "
    "fiercely. An ablating shield carries the heat away with the material that it loses.",
    "viscosity": "The viscosity of air at high temperature is needed to reckon skin friction. "
    "Sutherland's formula serves "
    "below two thousand degrees; above that, the molecules dissociate.",
    "cascade": "Flow through a cascade of turbine blades turns by less than the angle of the "
    "blades. The deviation grows with "
    "the space between the blades and with their camber.",
    "rotor": "The rotor of a helicopter in hover draws air from above and blows it down in a "
    "contracted wake. In fast flight "
    "the retreating blade stalls first.",
    "gust": "An aircraft that flies through a gust is lifted before its wing has felt the whole of "
    "the new stream. The load on "
    "the wing root depends on the length of the gust.",
    "interference": "The shock wave of a nacelle strikes the boundary layer of the wing and "
    "thickens it. Moving the nacelle "
    "forward keeps the interaction away from the wing.",
}
ANSWERED = (
    "What makes a thin panel flutter?",
    "heat transfer to a blunt nose at hypersonic speed",
    "noise of a jet",
)
UNHEARD_OF = (
    "How long should I simmer a beef stew?",
    "recipe for sourdough bread",
    "chocolate cake without eggs",
    "Which spices belong into a curry?",
)


def fill(db: Database) -> None:
    """Bring the library in."""
    for source, text in NOTES.items():
        db.documents.ingest_text(text, source=source, embed=False)
    db.embed_pending()
