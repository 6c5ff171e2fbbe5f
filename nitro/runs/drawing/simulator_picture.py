"""Pictures of a MuJoCo simulation without OpenGL, by the simulator's ray casting.

A ray per pixel returns the visible geom, its distance and its normal (`mujoco.mj_multiRay`). A ray
from the light to each of these points finds shadows. Pixels at edges are the mean of four rays. So
a picture needs no screen, graphics driver or system package, and is the same on every machine.
Textures, tendons and sites are not drawn.

The camera is the environment's own, but follows a moving agent.
"""

import copy
from typing import Any, TypeGuard

import mujoco
import numpy as np
from gymnasium.envs.mujoco.mujoco_env import MujocoEnv
from numpy.typing import NDArray

Floats = NDArray[np.float64]

WIDTH, HEIGHT = 400, 300
_GEOM_GROUPS = np.array([1, 1, 1, 0, 0, 0], np.uint8)
"""Geom groups that MuJoCo shows by default; models keep collision shapes in the others."""
_SIDE, _ABOVE = -15.0, -60.0
"""Camera angles in degrees for a moving agent, to show its gait or its winding."""
_ROOM = 4.0
"""Camera distance from a moving agent, in units of its radius."""
_LIGHT = np.array([-6.0, -8.0, 14.0])
"""Position of the light relative to the camera's target, in units of the camera's distance."""
_SKY_TOP, _SKY_HORIZON = np.array([0.52, 0.68, 0.86]), np.array([0.93, 0.95, 0.97])
_FLOOR = np.array([[0.80, 0.83, 0.86], [0.70, 0.74, 0.79]])
_NUM_EXTRA = 3
"""Colours after the geoms': two for the floor, one for the background."""
_AMBIENT, _SHADOW = 0.45, 0.30
"""Ambient light, and the remaining share of the lamp's light in shadow."""
_DEFAULT_RGBA = (0.5, 0.5, 0.5, 1.0)
"""A geom with this colour has its material's colour."""
_EDGE = 0.04
"""Difference of brightness between neighbours that marks a pixel as an edge."""
_QUARTERS = np.array([[-0.25, -0.25], [0.25, -0.25], [-0.25, 0.25], [0.25, 0.25]])


def draws(env: object) -> TypeGuard[MujocoEnv]:
    """Return whether an environment is a MuJoCo simulation without its own renderer."""
    return isinstance(env, MujocoEnv) and type(env).render is MujocoEnv.render


class SimulatorPicture:
    """Draws the current state of an environment's simulation, after its first reset."""

    def __init__(self, env: MujocoEnv) -> None:
        renderer: Any = env.mujoco_renderer
        self._model, self._data = copy.copy(env.model), env.data
        self._camera = _camera(self._model, renderer.default_cam_config, renderer.camera_id)
        self._followed = _moving_on(self._model) if renderer.camera_id < 0 else None
        if self._followed is not None:
            self._look_at(self._followed)
        self._colours = np.vstack([_colours(self._model), _FLOOR, _SKY_HORIZON])
        planes = self._model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
        if self._followed is not None:
            self._model.geom_size[planes, :2] = 0  # infinite, as for collisions
        self._is_floor = np.append(planes, False)  # index -1 means no geom
        self._square = self._camera.distance / 6 if self._followed is None else 1.0
        self._tan = np.tan(np.deg2rad(self._model.vis.global_.fovy) / 2)

    def _look_at(self, body: int) -> None:
        """Turn the camera to a body and its descendants."""
        centre, own = self._data.subtree_com[body], self._model.geom_bodyid > 0
        away = np.abs(self._data.geom_xpos[own] - centre).max(0)  # [3]
        self._camera.lookat[:] = centre
        self._camera.distance = _ROOM * (np.linalg.norm(away) + self._model.geom_rbound[own].min())
        self._camera.elevation = _ABOVE if away[2] < away[:2].max() / 4 else _SIDE

    def draw(self) -> NDArray[np.uint8]:
        """Return a picture [H, W, 3]."""
        if self._followed is not None:
            self._camera.lookat[:2] = self._data.subtree_com[self._followed][:2]
        eye, forward, up, right = (np.zeros(3) for _ in range(4))
        mujoco.mjv_cameraFrame(eye, forward, up, right, self._data, self._camera)

        def seen(rows: Floats, columns: Floats) -> Floats:
            x = (2 * columns - WIDTH) / HEIGHT * self._tan
            y = (1 - 2 * rows / HEIGHT) * self._tan
            rays = forward + y[:, None] * up + x[:, None] * right
            rays /= np.sqrt(np.einsum("ij,ij->i", rays, rays))[:, None]
            return self._seen(eye, rays)

        rows, columns = np.mgrid[:HEIGHT, :WIDTH].reshape(2, -1) + 0.5
        picture = seen(rows, columns)
        edge = np.flatnonzero(_edges(picture.reshape(HEIGHT, WIDTH, 3)))
        finer = (np.stack([rows[edge], columns[edge]], 1)[:, None] + _QUARTERS).reshape(-1, 2)
        picture[edge] = seen(finer[:, 0], finer[:, 1]).reshape(-1, len(_QUARTERS), 3).mean(1)
        whole: NDArray[np.uint8] = np.rint(255 * picture.clip(0, 1)).astype(np.uint8)
        return whole.reshape(HEIGHT, WIDTH, 3)

    def _seen(self, eye: Floats, rays: Floats) -> Floats:
        """Return the colours [N, 3] at the ends of unit rays [N, 3] from the eye."""
        geoms, distances, slopes = self._cast(eye, rays)
        points = eye + distances[:, None] * rays
        floor = self._is_floor[geoms]
        squares = np.floor(points[:, 0] / self._square) + np.floor(points[:, 1] / self._square)
        surface = self._colours[np.where(floor, squares.astype(int) % 2 - _NUM_EXTRA, geoms)]
        # Distant surfaces fade, because the floor's squares would flicker; the sky is empty.
        haze = floor - floor * np.exp(-((distances / (4 * self._camera.distance)) ** 2))
        haze[geoms < 0] = 1.0
        sky = np.sqrt(rays[:, 2].clip(0, 1))[:, None] * (_SKY_TOP - _SKY_HORIZON) + _SKY_HORIZON
        light = (1 - haze) * self._brightness(points, slopes)
        seen: Floats = surface * light[:, None] + sky * haze[:, None]
        return seen

    def _brightness(self, points: Floats, slopes: Floats) -> Floats:
        """Return the light [N] at points [N, 3] of surfaces with these normals."""
        lamp = self._camera.lookat + _LIGHT * self._camera.distance
        ways = points - lamp
        lengths = np.sqrt(np.einsum("ij,ij->i", ways, ways))
        ways /= lengths[:, None]
        _, reached, _ = self._cast(lamp, ways)
        towards = -np.einsum("ij,ij->i", ways, slopes).clip(-1, 0)
        in_shadow = (reached >= 0) & (reached < lengths - 0.01 * self._camera.distance)
        light: Floats = _AMBIENT + (1 - _AMBIENT) * towards * np.where(in_shadow, _SHADOW, 1.0)
        return light

    def _cast(self, origin: Floats, rays: Floats) -> tuple[NDArray[np.int32], Floats, Floats]:
        """Return the first hits of rays [N, 3] from a point: geom or -1, distance and normal."""
        count = len(rays)
        geoms, distances, slopes = np.zeros(count, np.int32), np.zeros(count), np.zeros((count, 3))
        mujoco.mj_multiRay(
            *(self._model, self._data, origin, np.ascontiguousarray(rays).reshape(-1)),
            *(_GEOM_GROUPS, True, -1, geoms, distances, slopes.reshape(-1), count, mujoco.mjMAXVAL),
        )
        return geoms, distances, slopes


def _camera(model: Any, config: dict[str, Any] | None, camera_id: int) -> Any:
    """Return an environment's camera."""
    camera = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, camera)
    for name, value in (config or {}).items():
        if name == "lookat":
            camera.lookat[:] = value
        else:
            setattr(camera, name, value)
    if camera_id >= 0:
        camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera_id
    return camera


def _moving_on(model: Any) -> int | None:
    """Return the body that moves freely; None if every body is fixed in place."""
    for joint in range(model.njnt):
        slides = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_SLIDE
        free = model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE
        if free or (slides and not model.jnt_limited[joint]):
            return int(model.jnt_bodyid[joint])
    return None


def _colours(model: Any) -> Floats:
    """Return each geom's colour [N, 3]."""
    colours: Floats = model.geom_rgba.astype(np.float64)
    material = model.geom_matid
    plain = (material >= 0) & (colours == _DEFAULT_RGBA).all(1)
    colours[plain] = model.mat_rgba[material[plain]]
    return colours[:, :3]


def _edges(picture: Floats) -> NDArray[np.bool_]:
    """Return which pixels [H, W] differ from a neighbour."""
    brightness = picture.mean(2)
    edges = np.zeros(brightness.shape, bool)
    across = np.abs(np.diff(brightness, axis=1)) > _EDGE
    down = np.abs(np.diff(brightness, axis=0)) > _EDGE
    edges[:, 1:] |= across
    edges[:, :-1] |= across
    edges[1:] |= down
    edges[:-1] |= down
    return edges
